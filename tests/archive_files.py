"""Writes tar and zip archives for tests."""

import io
import tarfile
import zipfile


def pack(contents, **options):
    """Returns the bytes of a tar of `{name: bytes}`; `options` as of `tarfile.open`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, **{"mode": "w", **options}) as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def pack_zip(contents, method=zipfile.ZIP_DEFLATED):
    """Returns the bytes of a zip of `{name: bytes}`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return packed.getvalue()
