"""tmp"""

from hurl.experiments.folder import Row as Row
