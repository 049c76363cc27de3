"""From questions and contexts to windows of tokens, and back to answers, in a graph.

Programs that load such a graph must `import tensorflow_text` first. The windows are those of
`sources.squad_windows`.
"""

from __future__ import annotations

import tensorflow as tf

from input_fns.text import wordpiece_ops

_NUM_SPECIAL = 3  # [CLS] and two [SEP]


def windows(question, context, pipeline):
    """Returns the features of the windows of each pair, at least one for each.

    Args:
      question: string `[batch]`, UTF-8.
      context: string `[batch]`, UTF-8.
      pipeline: a `squad_pipeline.SquadPipeline`.

    Returns:
      The features of the model and those for the host, int32; question_index is the row of the
      batch. `context` is that of each window, string `[windows]`, as valid UTF-8.
    """
    data = pipeline.data
    length, doc_stride = data.kind.max_length, data.properties["doc_stride"]
    vocabulary = pipeline.tokenizer
    tokenizer = wordpiece_ops.GraphTokenizer(vocabulary)
    query = tokenizer.tokenize(question)[:, : data.properties["max_query_length"]]
    context = wordpiece_ops.valid_utf8(context)
    tokens, starts, ends = tokenizer.tokenize_with_places(context)

    query_length = tf.cast(query.row_lengths(), tf.int32)  # [batch]
    num_tokens = tf.cast(tokens.row_lengths(), tf.int32)
    capacity = length - query_length - _NUM_SPECIAL
    stride = tf.minimum(capacity, doc_stride)
    missing = tf.maximum(num_tokens - capacity, 0)
    count = 1 + (missing + stride - 1) // stride

    rows = tf.repeat(tf.range(tf.shape(count)[0]), count)  # [windows]
    number = tf.range(tf.shape(rows)[0]) - tf.gather(tf.cumsum(count, exclusive=True), rows)
    query_length, num_tokens, capacity, stride, count = (
        tf.gather(values, rows)[:, tf.newaxis]
        for values in (query_length, num_tokens, capacity, stride, count)
    )
    first = number[:, tf.newaxis] * stride
    offset = query_length + 2
    end = offset + tf.minimum(capacity, num_tokens - first)  # position of the last [SEP]
    positions = tf.range(length)[tf.newaxis]
    in_query = (positions >= 1) & (positions <= query_length)
    in_context = (positions >= offset) & (positions < end)
    token = first + positions - offset  # [windows, length]

    def gather(ragged, places, mask, other):
        values = tf.concat([tf.cast(ragged.values, tf.int32), [0]], 0)  # it may have no token
        places += tf.gather(tf.cast(ragged.row_starts(), tf.int32), rows)[:, tf.newaxis]
        return tf.where(mask, tf.gather(values, tf.where(mask, places, 0)), other)

    is_sep = tf.equal(positions, query_length + 1) | tf.equal(positions, end)
    special = tf.where(is_sep, vocabulary.sep_id, vocabulary.pad_id)
    special = tf.where(tf.equal(positions, 0), vocabulary.cls_id, special)
    input_ids = gather(query, positions - 1, in_query, gather(tokens, token, in_context, special))

    # The score of each token in the windows before and after this one; see `squad_windows`.
    reach = -(-(length - _NUM_SPECIAL) // doc_stride)
    neighbors = number[:, tf.newaxis] + tf.range(-reach, reach + 1)[tf.newaxis]
    is_window = (neighbors >= 0) & (neighbors < count)
    start = (neighbors * stride)[:, :, tf.newaxis]  # [windows, neighbors, 1]
    size = tf.minimum(capacity[:, :, tf.newaxis], num_tokens[:, :, tf.newaxis] - start)
    token = token[:, tf.newaxis, :]
    context_size = tf.minimum(token - start, start + size - 1 - token)
    score = tf.cast(context_size, tf.float64) + 0.01 * tf.cast(size, tf.float64)
    is_possible = is_window[:, :, tf.newaxis] & (context_size >= 0)
    score = tf.where(is_possible, score, tf.constant(float("-inf"), tf.float64))
    is_max_context = in_context & tf.equal(tf.argmax(score, axis=1, output_type=tf.int32), reach)

    return {
        "input_ids": input_ids,
        "input_mask": tf.cast(positions <= end, tf.int32),
        "segment_ids": tf.cast((positions >= offset) & (positions <= end), tf.int32),
        "question_index": rows,
        "token_starts": gather(starts, first + positions - offset, in_context, 0),
        "token_ends": gather(ends, first + positions - offset, in_context, 0),
        "is_max_context": tf.cast(is_max_context, tf.int32),
        "context": tf.gather(context, rows),
    }


def answers(predictions, features, has_impossible):
    """Returns the answer to each question, from its windows.

    Args:
      predictions: see `models.text.bert_squad.best_spans`.
      features: from `windows`.
      has_impossible: whether "" may be the answer.

    Returns:
      `answer`, string `[batch]`, "" for none; `start` and `end`, int32 `[batch]`, its place in the
      context in code points, 0 and 0 for none; `score`, float32 `[batch]`, the sum of the logits of
      its first and last token, or of [CLS].
    """

    def by_question(values):
        return tf.RaggedTensor.from_value_rowids(values, features["question_index"])

    # With a column of no answer: argmax needs one if the batch is empty.
    scores = by_question(predictions["answer_score"]).to_tensor(float("-inf"))
    scores = tf.pad(scores, [[0, 0], [0, 1]], constant_values=float("-inf"))
    row_starts = by_question(features["question_index"]).row_starts()
    window = row_starts + tf.argmax(scores, axis=1, output_type=row_starts.dtype)
    score = tf.reduce_max(scores, axis=1)
    has_answer = tf.math.is_finite(score)
    null_score = tf.reduce_min(by_question(predictions["null_score"]), axis=1)
    if has_impossible:
        threshold = tf.gather(predictions["null_threshold"], row_starts)
        has_answer &= null_score - score <= threshold

    def code_point_of(place, token):
        return tf.gather(
            tf.gather(features[place], window), tf.gather(predictions[token], window), batch_dims=1
        )

    start = tf.where(has_answer, code_point_of("token_starts", "first_token"), 0)
    end = tf.where(has_answer, code_point_of("token_ends", "last_token"), 0)
    context = tf.gather(features["context"], window)
    return {
        "answer": tf.strings.substr(context, start, end - start, unit="UTF8_CHAR"),
        "start": start,
        "end": end,
        "score": tf.cast(tf.where(has_answer, score, null_score), tf.float32),
    }
