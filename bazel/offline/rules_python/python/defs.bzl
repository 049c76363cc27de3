"""The native rules of Bazel under the names that its own WORKSPACE loads."""

py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
