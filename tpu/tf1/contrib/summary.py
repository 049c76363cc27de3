"""tf.contrib.summary: summary ops that a host_call may create."""

from __future__ import annotations

_OPS = "tensorflow.python.ops.summary_ops_v2"

NAMES = {
    _OPS: """SummaryWriter all_summary_ops=all_v2_summary_ops always_record_summaries audio
        create_file_writer create_summary_file_writer eval_dir flush=legacy_raw_flush generic
        graph=graph_v1 histogram image import_event initialize never_record_summaries
        record_summaries_every_n_global_steps scalar
        should_record_summaries=_legacy_contrib_should_record_summaries
        summary_writer_initializer_op""",
}
