"""What commands import, once for all: each case is a fork of a process that has it, and that has no threads."""

from hurl.experiments.process import prepare_process

prepare_process(threads=1)

import gc  # noqa: E402
import importlib  # noqa: E402

for module in (
    "envpool",
    "h5py",
    "hurl.cli",
    "hurl.diagnosis",
    "hurl.experiments.agents",
    "hurl.experiments.evaluate",
    "hurl.experiments.fitting",
    "hurl.experiments.policies",
    "hurl.experiments.run",
    "hurl.experiments.trainers.sb3",
    "hurl.experiments.tuning.trials",
    "hurl.reports",
    "matplotlib.pyplot",
    "minari",
    "rich.progress",
    "rliable.metrics",
    "sb3_contrib",
    "scipy.stats",
    "tensorboard",
    "tests.fuzz.artefacts",
    "torch._dynamo",
    "torch.utils.tensorboard",
):
    importlib.import_module(module)

gc.freeze()  # what is never looked at again is never copied in a fork
