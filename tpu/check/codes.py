"""What the codes of findings mean: texts of `python -m tpu check --explain CODE`."""

from __future__ import annotations

import textwrap

_TEXTS = {
    "augmentation": """
        Images are augmented inside model_fn. The TPU runs image operations slowly, while the CPUs
        of its host wait. Move the operation to the dataset: `dataset.map(augment,
        num_parallel_calls=tf.data.AUTOTUNE)` in input_fn, before `batch`.""",
    "batch": """
        input_fn does not return params['batch_size'] examples. TPUEstimator divides the global
        batch size of its constructor by the number of cores or hosts, and passes the result as
        params['batch_size']; it does not divide what input_fn returns (PER_HOST_V2). With another
        size the global batch, the learning rate and examples/s are not what you configured. Use
        `dataset.batch(params['batch_size'], drop_remainder=True)`.""",
    "batch-of-8": """
        A TPU stores arrays in tiles of 8 x 128 elements, or of 2 or 4 rows for small dimensions.
        The compiler tiles the batch of convolutions and of matrices [batch, units], so a per-core
        batch of 13 takes the memory of 16; a batch of 4 that of 4. Of [batch, length, units] it
        tiles the other dimensions, and any batch is fine. The finding gives the share of padding
        of this step. Use a global batch that is a multiple of 8 x number of cores: 1024, not 1000,
        on 8 cores.""",
    "capture": """
        The model uses a tensor that was created outside of model_fn or under tf.init_scope. An
        error for tables, iterators, strings and placeholders, which cannot enter a TPU program:
        look words up in input_fn instead. A warning for numbers: the host computes them once per
        session.run, so all iterations_per_loop steps see the same value. Create the tensor inside
        model_fn. Keras layers that are called without `training=` read a tensor that is False: pass
        `training=(mode == tf.estimator.ModeKeys.TRAIN)`.""",
    "clip-before-sum": """
        Gradients are clipped on each core before CrossShardOptimizer sums them, so results differ
        from one device. The norm of a core's gradient is larger than that of the average, so the
        same limit clips more on more cores; but gradients of CrossShardOptimizer's
        `compute_gradients` are divided by the number of cores, so it clips less. Many published
        programs (BERT) do it on purpose or by accident. To clip the summed gradient, do it inside
        the wrapped optimizer, or sum first: `gradients =
        [tf.compat.v1.tpu.cross_replica_sum(g) / num_cores for g in gradients]`, and then use the
        optimizer without CrossShardOptimizer.""",
    "conditional-collective": """
        A sum over the cores (`cross_replica_sum`, CrossShardOptimizer) is inside a tf.cond or
        tf.while_loop whose condition depends on the examples of a core. Cores with another result
        do not reach it, and the others wait without an end. Compute the condition from values that
        are the same on all cores: `tf.compat.v1.tpu.cross_replica_sum(tf.cast(is_finite,
        tf.float32)) >= num_cores`, or one of global_step.""",
    "dtype": """
        The operation has a TPU kernel, but not for this dtype. Cast its input, for example
        `tf.cast(x, tf.float32)` instead of float64 or complex128, or compute it in input_fn.""",
    "dynamic-shape": """
        The shape of the result depends on data, such as `tf.boolean_mask`, `tf.unique` or
        `tf.where(x)`. The TPU compiler pads the result to its largest size. This compiles where the
        result is only summed, multiplied by a matrix or gathered. It is an error tpu-compiler where
        the result is combined with a value of another shape, such as a scalar, or in a gradient
        that does so, because libtpu 0.0.34 refuses that. Use a mask: `tf.reduce_sum(tf.where(keep,
        x, 0))` instead of `tf.reduce_sum(tf.boolean_mask(x, keep))`.""",
    "environment": """
        A flag, a version or a path of the run is invalid; the message says which. It is found
        before any graph is built.""",
    "float64": """
        A TPU has no float64 units; the compiler emulates them with several float32 operations.
        It comes from NumPy arrays and Python floats in `np.float64`. Cast: `tf.constant(array,
        tf.float32)`.""",
    "graph": """
        TPUEstimator, input_fn or model_fn raises while it builds the graph for the slice. The run
        would end with the same message. It includes TPUEstimator's own rules: static shapes
        (`drop_remainder=True`), batch sizes divisible by the number of cores, `params` arguments,
        evaluation and prediction on one host.""",
    "hbm": """
        The step needs more memory than a core has (error), or more than 90 % of it (warning), as
        reported by the TPU compiler. Use a smaller batch, bfloat16 activations, gradient
        accumulation, or `tf.recompute_grad` for large layers.""",
    "hook": """
        A hook reads a tensor of the training loop, such as LoggingTensorHook on the learning rate
        or NanTensorHook on the loss (error); or one of your own hooks has it as an attribute
        (warning). The loop runs on the TPU for iterations_per_loop steps, so its tensors cannot be
        fetched.
        Pass the tensor to host_call, which receives it every step: `host_call=(log, [step, lr])`,
        each reshaped to `[1]`.""",
    "host": """
        input_fn delivers fewer examples/s on this machine than the cores of one TPU host consume
        in the modeled step time. The TPU waits for input unless its host is faster. Use
        `prefetch`, parallel `map` and `interleave`, `cache`, and decode less.""",
    "infeed-float": """
        Images cross the infeed as float32. uint8 images take a quarter of the bytes, and scaling
        them on the TPU costs almost nothing: `tf.cast(images, tf.float32) / 255` in model_fn.""",
    "no-cross-replica-sum": """
        A variable is updated with the gradient of one core, or of a group of cores. Each then
        trains on its own shard of the batch, and the weights of core 0 are saved. Wrap the
        optimizer, `optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)`, if
        params['use_tpu']. Random numbers (`tf.random.normal`) and conditions on the batch differ
        between cores, too: use tf.random.stateless_normal with a seed from global_step, and sum
        the condition.""",
    "op": """
        TensorFlow has no TPU kernel for the operation (list of tensorflow-tpu 2.16.1), so
        compilation fails when the first step starts. Use another operation, or compute it in
        input_fn on the host.""",
    "outside-compilation": """
        The operation runs on the host, because of tf.tpu.outside_compilation or because soft
        device placement places what has no TPU kernel there (`tf.config.set_soft_device_placement
        (True)`). At every step the core sends the inputs to the host and waits for the result. It
        is correct, but slow for anything that runs each step. For summaries use host_call. On v5e,
        v5p and v6e it is an error: PJRT devices run only whole steps.""",
    "per-core-state": """
        A variable that is not a weight, such as accumulated gradients, a codebook, a baseline or a
        loss scale, is updated with the batch of each core, and the training reads it. Each core has
        its own value until the training loop ends (iterations_per_loop steps); then all cores have
        that of core 0, and those of the others are lost. Sum what is added to it with
        `tf.compat.v1.tpu.cross_replica_sum`. Accumulated gradients that CrossShardOptimizer sums
        later are right if iterations_per_loop is a multiple of the number of accumulated steps.""",
    "pjrt": """
        TPU v5e, v5p and v6e have only the PJRT runtime, on which a program runs by `--tpu=pjrt`:
        JAX compiles the step of a core, as TensorFlow lowers it on a CPU, and runs it on all
        devices. TPU embeddings, model parallelism (num_cores_per_replica) and operations that only
        TensorFlow's own TPU runtime has are not supported there. Replace them, or run on v2, v3 or
        v4.""",
    "placeholder": """
        A placeholder inside model_fn. The training loop runs on the TPU and cannot be fed. Return
        the value from input_fn as a feature, or pass it in `params`.""",
    "print": """
        tf.print and tf.compat.v1.Print run on a host only. An error if the step depends on it, a
        warning if nothing does, since a TPU then leaves it out. Pass the tensor to host_call.""",
    "py_func": """
        tf.py_func and tf.numpy_function call Python, which a TPU cannot. Call the function in
        input_fn, in `dataset.map`, or write it with TensorFlow operations that have TPU
        kernels.""",
    "run": """
        The difference between a few steps on one CPU and on emulated cores, or the error that
        ended them. Rounding is below 1e-4; dropout and per-core batch norm differ by design.""",
    "string": """
        An operation on strings inside model_fn. A TPU has numbers only. Convert strings in
        input_fn, and return indices instead of names from predict. The messages of asserts are no
        problem: XLA drops asserts.""",
    "summary": """
        tf.summary inside model_fn. tf.compat.v1.summary adds its result to the collection
        SUMMARIES. TPUEstimator's session merges that collection outside of the TPU loop, so the
        run fails at its start: "Cannot use 'loss' as input to 'Merge/MergeSummary' because 'loss'
        is in a while loop". It is an error, in evaluation and prediction, too, unless scaffold_fn
        sets summary_op. A summary in no collection, such as `collections=[]` or tf.summary of
        version 2, is a warning if nothing depends on it: a TPU leaves it out, and nothing is
        written. It is an error if the step depends on it. Write summaries in host_call:
        `host_call=(write, [tf.reshape(step, [1]), tf.reshape(loss, [1])])`.""",
    "tiles": """
        A layer whose numbers of channels are not multiples of 8. A TPU stores arrays in tiles of
        8 x 128 elements and multiplies matrices of 128 x 128; the rest is padding. Use multiples
        of 128 for wide layers and of 8 for narrow ones: 128 filters cost no more than 100.""",
    "tpu-compiler": """
        The TPU compiler (libtpu) cannot compile the step, although TensorFlow's list of kernels
        allows all operations. The message is the compiler's, or names an operation on a shape that
        depends on data, which the compiler is known to refuse (see dynamic-shape). Find the
        operation that it names, and replace it.""",
    "unordered-update": """
        A variable is read to compute an update and changed in the same step, and neither waits for
        the other. The order is then chosen by the compiler: a learning rate may see the old or the
        new global_step, so results differ between CPU, TPU and versions. Add an order:
        `with tf.control_dependencies([train_op]): step = global_step.assign_add(1)`.""",
    "update-never-runs": """
        Nothing runs an update that is surely meant to run: the moving averages of batch norm, so
        evaluation uses their initial values; an average of the weights; an accumulator of gradients
        that is read; every optimizer; or the increment of global_step, without which the training
        never ends. A warning if one of several optimizers is not run, which is right if another
        Estimator trains its variables, and for a copy of weights into a target network. Frozen
        layers, counters and assignments that are kept for later are not reported. For batch norm:
        `updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)`, and then `with
        tf.control_dependencies(updates): train_op = optimizer.minimize(...)`. Keras layers do not
        fill UPDATE_OPS: use `layer.updates`.""",
    "xla": """
        TensorFlow cannot lower the step to XLA, which the TPU's compiler takes as its input. The
        message names the operation: most often a shape that depends on data, a loop with gradients
        without maximum_iterations, or an operation without a kernel in a function.""",
}


def codes() -> list[str]:
    """Returns the codes of all findings."""
    return sorted(_TEXTS)


def explain(code: str) -> str:
    """Returns what a finding means, why it matters on a TPU, and how to mend it.

    Raises:
      ValueError: an unknown code.
    """
    if code not in _TEXTS:
        raise ValueError(f"unknown code '{code}'. Valid: {', '.join(codes())}")
    words = " ".join(_TEXTS[code].split())
    return f"{code}\n{textwrap.fill(words, 96, break_on_hyphens=False)}"
