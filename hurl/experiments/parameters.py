"""What the parameters of algorithms may be, by their names: nothing of the libraries is imported here.

A library takes many a value that it fails on only in the midst of training, or never, learning nothing. Names that are
not here may have any value; whether an algorithm has them is asked of its library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hurl.values import FLAG, MAPPING, NOTHING, Kind, Kinds, check_values, list_of, number, text_like, whole, word

SHARE, POSITIVE, NOT_NEGATIVE, ANY_NUMBER = number(0, 1), number(0, above=True), number(0), number()
WIDTHS = list_of(whole(1, 10_000))
NET_ARCH = Kind(
    "the widths of layers, whole numbers from 1 to 10,000: a list, or one for each network, such as "
    "{pi: [64], qf: [256]}",
    lambda value: all(map(WIDTHS.accepts, value.values() if isinstance(value, Mapping) and value else [value])),
)
AUTO = word("auto")

SB3: Kinds = {
    "alive_bonus_offset": ANY_NUMBER,
    "batch_size": whole(1),
    "buffer_size": whole(1),
    "cg_damping": NOT_NEGATIVE,
    "cg_max_steps": whole(1),
    "clip_range": POSITIVE,
    "clip_range_vf": POSITIVE | NOTHING,
    "delta_std": POSITIVE,
    "device": text_like(r"auto|cpu|mps|(cuda|xpu|hpu)(:\d{1,3})?", "'auto', 'cpu' or such as 'cuda:0'"),
    "ent_coef": NOT_NEGATIVE | AUTO | text_like(r"auto_(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,2})?", "such as 'auto_0.1'"),
    "exploration_final_eps": SHARE,
    "exploration_fraction": SHARE,
    "exploration_initial_eps": SHARE,
    "gae_lambda": SHARE,
    "gradient_steps": whole(-1),
    "learning_rate": NOT_NEGATIVE,
    "learning_starts": whole(0),
    "line_search_max_iter": whole(1),
    "line_search_shrinking_factor": number(0, 1, above=True),
    "max_grad_norm": POSITIVE | NOTHING,
    "n_critic_updates": whole(1),
    "n_delta": whole(1),
    "n_epochs": whole(1),
    "n_eval_episodes": whole(1),
    "n_steps": whole(1),
    "n_top": whole(1) | NOTHING,
    "normalize_advantage": FLAG,
    "param_resets": list_of(whole(1)) | NOTHING,
    "policy_delay": whole(1),
    "policy_kwargs": {
        "batch_norm": FLAG,
        "dropout_rate": SHARE | NOTHING,
        "enable_critic_lstm": FLAG,
        "features_extractor_kwargs": MAPPING | NOTHING,
        "layer_norm": FLAG,
        "log_std_init": ANY_NUMBER,
        "lstm_hidden_size": whole(1, 10_000),
        "n_critics": whole(1, 1_000),
        "n_lstm_layers": whole(1, 1_000),
        "n_quantiles": whole(1, 10_000),
        "net_arch": NET_ARCH | NOTHING,
        "normalize_images": FLAG,
        "optimizer_kwargs": MAPPING | NOTHING,
        "ortho_init": FLAG,
        "share_features_extractor": FLAG,
        "shared_lstm": FLAG,
    },
    "qf_learning_rate": NOT_NEGATIVE | NOTHING,
    "replay_buffer_kwargs": MAPPING | NOTHING,
    "rms_prop_eps": POSITIVE,
    "rollout_buffer_kwargs": MAPPING | NOTHING,
    "sde_sample_freq": whole(-1),
    "stats_window_size": whole(1),
    "sub_sampling_factor": whole(1),
    "target_entropy": ANY_NUMBER | AUTO,
    "target_noise_clip": NOT_NEGATIVE,
    "target_policy_noise": NOT_NEGATIVE,
    "target_update_interval": whole(1),
    "tau": SHARE,
    "top_quantiles_to_drop_per_net": whole(0),
    "train_freq": whole(1),
    "use_rms_prop": FLAG,
    "use_sde_at_warmup": FLAG,
    "vf_coef": NOT_NEGATIVE,
    "zero_policy": FLAG,
}
# Entropy is weighed by a number in these; only others adapt it.
ON_POLICY = ("A2C", "MaskablePPO", "PPO", "RecurrentPPO", "TRPO")

SCHEDULE = Kind(
    "a schedule, a list of steps and values such as [[0, 0.001], [100000, 0.0]]",
    lambda value: (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
        and all(whole(0, 2**62).accepts(step) and ANY_NUMBER.accepts(level) for step, level in value)
    ),
)
RATE = NOT_NEGATIVE | SCHEDULE
RLLIB: Kinds = {
    "_deterministic_loss": FLAG,
    "_use_beta_distribution": FLAG,
    "actor_lr": RATE | NOTHING,
    "adam_epsilon": POSITIVE,
    "alpha_lr": RATE | NOTHING,
    "burn_in_len": whole(0),
    "categorical_distribution_temperature": POSITIVE,
    "clip_actions": FLAG,
    "clip_param": POSITIVE,
    "critic_lr": RATE | NOTHING,
    "double_q": FLAG,
    "dueling": FLAG,
    "entropy_coeff": RATE,
    "entropy_coeff_schedule": SCHEDULE | NOTHING,
    "env_runners": {
        "batch_mode": word("truncate_episodes", "complete_episodes"),
        "rollout_fragment_length": whole(1) | AUTO,
        "sample_timeout_s": NOT_NEGATIVE | NOTHING,
    },
    "epsilon": SHARE | SCHEDULE,
    "grad_clip": POSITIVE | NOTHING,
    "grad_clip_by": word("value", "norm", "global_norm"),
    "hiddens": WIDTHS,
    "initial_alpha": POSITIVE,
    "kl_coeff": NOT_NEGATIVE,
    "kl_target": NOT_NEGATIVE,
    "lambda_": SHARE,
    "lr": RATE | NOTHING,
    "lr_schedule": SCHEDULE | NOTHING,
    "max_requests_in_flight_per_aggregator_actor": whole(1),
    "minibatch_size": whole(1) | NOTHING,
    "model_config": {"fcnet_hiddens": WIDTHS, "head_fcnet_hiddens": WIDTHS, "vf_share_layers": FLAG},
    "n_step": whole(1) | list_of(whole(1), 2),
    "noisy": FLAG,
    "num_aggregator_actors_per_learner": whole(0),
    "num_atoms": whole(1),
    "num_epochs": whole(1),
    "num_steps_sampled_before_learning_starts": whole(0),
    "optimizer": MAPPING,
    "policy_model_config": MAPPING,
    "q_model_config": MAPPING,
    "replay_buffer_config": MAPPING,
    "shuffle_batch_per_epoch": FLAG,
    "sigma0": NOT_NEGATIVE,
    "store_buffer_in_checkpoints": FLAG,
    "target_entropy": ANY_NUMBER | AUTO,
    "target_network_update_freq": whole(0) | NOTHING,
    "tau": SHARE,
    "td_error_loss_fn": word("huber", "mse"),
    "train_batch_size_per_learner": whole(1),
    "training_intensity": POSITIVE | NOTHING,
    "twin_q": FLAG,
    "use_critic": FLAG,
    "use_gae": FLAG,
    "use_kl_loss": FLAG,
    "v_max": ANY_NUMBER,
    "v_min": ANY_NUMBER,
    "vf_clip_param": POSITIVE,
    "vf_loss_coeff": NOT_NEGATIVE,
}

# Parameters that are not for users to set here, and what to do in their place.
REFUSED_EVERYWHERE = dict.fromkeys(("gamma", "seed"), "set it at the top of the configuration")
REFUSED_SB3 = {
    "action_noise": "set algorithm.action_noise",
    "env": "set environment",
    "policy": "set algorithm.policy",
    **dict.fromkeys(
        ("_init_setup_model", "guidance", "jump_start", "prior", "tensorboard_log", "verbose"),
        "the run sets it, leave it out",
    ),
    **dict.fromkeys(
        ("optimize_memory_usage", "replay_buffer_class", "rollout_buffer_class", "target_kl", "use_sde"),
        "a run with it could not be resumed exactly, leave it out or train in Python with hurl.guided()",
    ),
}


def check_parameters(algorithm: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters of an algorithm whose value can't be meant, or that are set elsewhere.

    :param algorithm: library and class, `sbx.SAC`
    """
    library, _, name = algorithm.partition(".")
    is_rllib = library == "rllib"
    refused = REFUSED_EVERYWHERE if is_rllib else REFUSED_EVERYWHERE | REFUSED_SB3
    for key in parameters:
        if key in refused:
            raise ValueError(f"algorithm.parameters has no place for {key!r}: {refused[key]}")
    own: Kinds = {"ent_coef": NOT_NEGATIVE} if name in ON_POLICY else {}
    check_values(parameters, RLLIB if is_rllib else {**SB3, **own}, "algorithm.parameters.")
