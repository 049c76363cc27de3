"""tf.contrib.stateless."""

from __future__ import annotations

NAMES = {
    "v1.random": """stateless_multinomial stateless_random_normal=stateless_normal
        stateless_random_uniform=stateless_uniform stateless_truncated_normal""",
}
