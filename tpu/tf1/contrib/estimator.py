"""tf.contrib.estimator."""

from __future__ import annotations

NAMES = {
    "v1.estimator": "add_metrics",
    "v1.estimator.experimental": """InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn
        call_logit_fn dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook
        make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook
        stop_if_no_decrease_hook stop_if_no_increase_hook""",
}
