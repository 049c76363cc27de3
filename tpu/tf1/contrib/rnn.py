"""tf.contrib.rnn."""

from __future__ import annotations

NAMES = {
    "v1.nn.rnn_cell": """BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell
        LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper""",
    "v1.nn": "static_bidirectional_rnn static_rnn static_state_saving_rnn",
}
