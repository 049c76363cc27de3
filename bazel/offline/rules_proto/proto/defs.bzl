"""The native rules of Bazel under the names that its own WORKSPACE loads."""

proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
