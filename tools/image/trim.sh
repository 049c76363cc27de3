#!/bin/sh
# Removes from .venv what no program reads: a third of its size in the container image.
#   tensorflow/include  headers, for building custom ops
#   clang               the native library that no Python module of TensorFlow loads
#   tests               test data of the packages
set -eu
cd "$(dirname "$0")/.."
site=$(echo .venv/lib/python3.*/site-packages)
rm -rf "$site/tensorflow/include" "$site/clang/native"
find "$site" -type d -name tests -prune -exec rm -rf {} +
