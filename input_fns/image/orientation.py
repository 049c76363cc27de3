"""The EXIF orientation of JPEG and PNG files, read with TensorFlow ops for SavedModels.

Same as Pillow's `ImageOps.exif_transpose`: from the EXIF block or, without one, from the XMP block.
Files are untrusted: an invalid block is ignored, and all loops are bounded.
"""

from __future__ import annotations

import tensorflow as tf

UPRIGHT = 1
# Segments before the pixels of a JPEG, chunks of a PNG. Encoders write chunks of 8 KiB or more.
_MAX_SEGMENTS = 1 << 16
_TAG = 0x0112
# TIFF types that hold one integer: SHORT and SSHORT of 2 bytes, LONG and SLONG of 4.
_SHORTS, _LONGS = (3, 8), (4, 9)
_ENTRY = 12  # bytes: tag, type, count, value
_EXIF = b"Exif\0\0"
_XMP_OF_JPEG, _XMP_OF_PNG = b"http://ns.adobe.com/xap/1.0/\0", b"iTXtXML:com.adobe.xmp\0"
# \C matches any byte, RE2's dot only UTF-8. The first match counts.
_XMP = r'^\C*?tiff:Orientation(?:="|>)([0-9])\C*$'
# Skips the loop over the segments of most files without an orientation.
_MAY_BE_TURNED = r"\C*(?:Exif\x00\x00|eXIf|tiff:Orientation)\C*"
# Zero padding, so that headers at the end can be read.
_MARGIN = b"\0" * 64


def read(encoded):
    """Returns the orientation of a JPEG or PNG file, a string, as int32 in [1, 8].

    Running it raises InvalidArgumentError for a file of more than 65,536 segments.
    """
    return tf.cond(
        tf.strings.regex_full_match(encoded, _MAY_BE_TURNED),
        lambda: _read_blocks(encoded),
        lambda: UPRIGHT,
    )


def _read_blocks(encoded):
    size = tf.strings.length(encoded)
    data = _numbers(encoded)
    exif, xmp = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _visit_all(_visit_jpeg, 2, data, size),
        lambda: _visit_all(_visit_png, 8, data, size),
    )
    tagged = _from_tiff(_block(encoded, exif))
    found = tf.cond(tagged >= 0, lambda: tagged, lambda: _from_xmp(_block(encoded, xmp)))
    return tf.where((found >= 1) & (found <= 8), found, 1)


def upright(pixels, orientation):
    """Returns `[height, width, channels]` transposed and flipped like `exif_transpose`."""

    def turned_if(orientations, turn, pixels):
        is_one = tf.reduce_any(tf.equal(orientation, orientations))
        return tf.cond(is_one, lambda: turn(pixels), lambda: pixels)

    def turned():
        found = turned_if((5, 6, 7, 8), lambda x: tf.transpose(x, [1, 0, 2]), pixels)
        found = turned_if((2, 3, 6, 7), lambda x: tf.reverse(x, [1]), found)
        return turned_if((3, 4, 7, 8), lambda x: tf.reverse(x, [0]), found)

    return tf.cond(tf.equal(orientation, 1), lambda: pixels, turned)


def _visit_all(visit, start, data, size):
    """Returns the positions of the EXIF and the XMP block, two int32 `[2]`: start and end.

    Args:
      visit: function of data, a position and the two blocks found so far; returns the position of
        the next segment and the updated blocks.
      start: position of the first segment.
      data: uint8, the file and zero padding.
      size: size of the file, int32.
    """

    def has_more(count, at, exif, xmp):
        del exif, xmp
        return (at < size) & (count < _MAX_SEGMENTS)

    def visit_next(count, at, exif, xmp):
        following, exif, xmp = visit(data, at, exif, xmp)
        # The length is untrusted and may overflow.
        return (
            count + 1,
            tf.where((following < at) | (following > size), size, following),
            exif,
            xmp,
        )

    nowhere = tf.zeros([2], tf.int32)
    _, at, exif, xmp = tf.while_loop(
        has_more, visit_next, (0, start, nowhere, nowhere), parallel_iterations=1
    )
    problem = f"an image file of more than {_MAX_SEGMENTS} segments"
    with tf.control_dependencies([tf.debugging.Assert(at >= size, [problem])]):
        return tf.minimum(exif, size), tf.minimum(xmp, size)


def _visit_jpeg(data, at, exif, xmp):
    first, code, length = (
        _integer(data, at, 1),
        _integer(data, at + 1, 1),
        _integer(data, at + 2, 2),
    )
    is_marker = tf.equal(first, 0xFF)
    is_app1 = is_marker & tf.equal(code, 0xE1)
    block = tf.stack([at + 4, at + 2 + tf.maximum(length, 2)])
    is_first = exif[1] - exif[0] <= len(_EXIF)  # none yet, or empty
    exif = tf.where(is_app1 & is_first & _begins(data, at + 4, _EXIF), block, exif)
    xmp = tf.where(is_app1 & _begins(data, at + 4, _XMP_OF_JPEG), block, xmp)
    is_junk = ~is_marker | tf.equal(code, 0xFF)
    # RST, SOI, EOI and TEM have no length.
    is_alone = (code >= 0xD0) & (code <= 0xD9) | (code <= 1)
    following = tf.where(is_junk, at + 1, tf.where(is_alone, at + 2, block[1]))
    is_end = is_marker & tf.equal(code, 0xDA)  # the pixels follow
    return tf.where(is_end, -1, following), exif, xmp


def _visit_png(data, at, exif, xmp):
    block = tf.stack([at + 8, at + 8 + _integer(data, at, 4)])
    exif = tf.where(_begins(data, at + 4, b"eXIf"), block, exif)
    xmp = tf.where(_begins(data, at + 4, _XMP_OF_PNG), block, xmp)
    return tf.where(_begins(data, at + 4, b"IEND"), -1, block[1] + 4), exif, xmp


def _from_tiff(block):
    """Returns the orientation in the first directory of a TIFF header, int32; -1 if there is none.

    Args:
      block: string, with or without the prefix of EXIF.
    """
    block = tf.strings.regex_replace(block, "^(Exif\\x00\\x00){1,2}", "")
    size, data = tf.strings.length(block), _numbers(block)
    is_little = _begins(data, 0, b"II*\0") | _begins(data, 0, b"II\0*")
    is_big = _begins(data, 0, b"MM\0*") | _begins(data, 0, b"MM*\0")

    def integers(rows, width):
        rows = tf.cast(rows[..., :width], tf.int32)
        powers = tf.constant([256**i for i in range(width)])
        return tf.reduce_sum(rows * tf.where(is_big, powers[::-1], powers), axis=-1)

    def read():
        start = integers(data[4:8], 4)
        # Values above int32 are negative.
        start = tf.where((start < 0) | (start > size), size, start) + 2
        count = tf.minimum(
            integers(data[start - 2 : start], 2), tf.maximum(size - start, 0) // _ENTRY
        )
        entries = tf.reshape(data[start : start + count * _ENTRY], [-1, _ENTRY])
        types, value = integers(entries[:, 2:], 2)[:, tf.newaxis], entries[:, 8:]
        is_short = tf.reduce_any(tf.equal(types, _SHORTS), axis=1)
        is_long = tf.reduce_any(tf.equal(types, _LONGS), axis=1)
        values = tf.where(is_short, integers(value, 2), integers(value, 4))
        number = integers(entries[:, 4:], 4)
        is_inside = (is_short & tf.equal(number, 2)) | ((is_short | is_long) & tf.equal(number, 1))
        is_wanted = tf.equal(integers(entries, 2), _TAG) & is_inside
        found = tf.boolean_mask(tf.maximum(values, 0), is_wanted)
        return tf.concat([found, [-1]], axis=0)[0]

    # Like Pillow, ignore the XMP block if the EXIF block is invalid.
    return tf.cond(is_little | is_big, read, lambda: tf.where(size > 0, 1, -1))


def _from_xmp(block):
    """Returns the orientation in XML, string, as int32; 1 if there is none."""
    digit = tf.strings.regex_replace(block, _XMP, r"\1")
    is_found = tf.strings.regex_full_match(digit, "[0-9]")
    return tf.strings.to_number(tf.where(is_found, digit, "1"), tf.int32)


def _numbers(encoded):
    return tf.io.decode_raw(tf.strings.join([encoded, _MARGIN]), tf.uint8)


def _integer(data, at, width):
    """Returns the big-endian integer of `width` bytes; one of 32 bits may be negative."""
    powers = [256**i for i in reversed(range(width))]
    return tf.reduce_sum(tf.cast(data[at : at + width], tf.int32) * tf.constant(powers))


def _begins(data, at, prefix):
    return tf.reduce_all(tf.equal(data[at : at + len(prefix)], tf.constant(list(prefix), tf.uint8)))


def _block(encoded, place):
    return tf.strings.substr(encoded, place[0], place[1] - place[0])
