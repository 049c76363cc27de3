"""Names that Python, NumPy and Pillow removed."""

import collections
import inspect

import numpy as np


def test_removed_names_are_available_to_a_program(run_old):
    found = run_old(
        """
        import collections, inspect, time
        import numpy as np
        from PIL import Image
        mask = np.zeros(2, np.bool)
        scalar = np.asscalar(np.array([3]))
        is_mapping = isinstance({}, collections.Mapping)
        spec = inspect.getargspec(lambda a, b=1, *c, **d: None)
        seconds = time.clock()
        filter = Image.ANTIALIAS
        """
    )
    assert found["mask"].dtype == bool
    assert found["scalar"] == 3
    assert found["is_mapping"]
    assert found["spec"] == (["a", "b"], "c", "d", (1,))
    assert found["filter"] == found["Image"].LANCZOS


def test_removed_names_end_with_the_program(run_old):
    before = [hasattr(inspect, "getargspec"), hasattr(collections, "Mapping")]
    run_old("pass")
    assert [hasattr(inspect, "getargspec"), hasattr(collections, "Mapping")] == before
    assert "bool" not in vars(np)
