"""Writes tar archives for tests."""

import io
import tarfile


def pack(contents, **options):
    """Returns the bytes of a tar of `{name: bytes}`; `options` as of `tarfile.open`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, **{"mode": "w", **options}) as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()
