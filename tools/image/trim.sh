#!/bin/sh
# Removes from .venv what no program reads: a quarter of its size in the container image.
#   tensorflow/include  headers, for building custom ops
#   clang               the native library that no Python module of TensorFlow loads
#   documents           descriptions of Google's APIs, but for that of Cloud TPU
#   tests               test data of the packages
set -eu
cd "$(dirname "$0")/.."
site=$(echo .venv/lib/python3.*/site-packages)
rm -rf "$site/tensorflow/include" "$site/clang/native"
documents=$site/googleapiclient/discovery_cache/documents
if [ -d "$documents" ]; then
  find "$documents" -name '*.json' ! -name 'tpu.*' -delete
fi
find "$site" -type d -name tests -prune -exec rm -rf {} +
