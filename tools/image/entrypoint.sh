#!/bin/sh
# Entry point of the container image. The arguments are a program (run_cpu.py ...), options of Python
# (-m tpu check ...) or any command (python ..., tensorboard ..., bash).
set -eu
case "${1-}" in
  *.py | -*) set -- python "$@" ;;
esac
exec "$@"
