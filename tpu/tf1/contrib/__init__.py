"""Functions and classes of tf.contrib that TensorFlow 2.15 lacks, one module for each area.

`__all__` of a module lists them. `areas` says where the other names of an area are today.
"""
