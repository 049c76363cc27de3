#!/bin/sh
# Makes .venv with the locked requirements: tools/setup.sh CHOICE [dev]
#   CHOICE  tensorflow | cpu | gpu | system (requirements/CHOICE.txt); 'system' keeps the TensorFlow
#           that the machine's image brings, which on a Cloud TPU VM is the only one that drives it.
set -eu
cd "$(dirname "$0")/.."
choice=$1
shift

if [ ! -f "requirements/$choice.txt" ]; then
  echo "setup: TENSORFLOW=$choice is unknown: use tensorflow, cpu, gpu or system" >&2
  exit 2
fi

find_python() {
  for candidate in ${PYTHON:-} python3.11 python3.10 python3.9 python3 python; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  newest=$(python3 --version 2>&1 || true)
  echo "setup: no Python 3.9, 3.10 or 3.11 found (python3 is: ${newest:-missing}); TensorFlow 2.15," \
    "the last with Estimator, has no wheel for others. Install one, or set PYTHON=/path/to/python3.11" >&2
  return 1
}

requirements="-r requirements/$choice.txt"
for extra in "$@"; do
  requirements="$requirements -r requirements/$extra.txt"
done

stamp=".venv/.installed"
sum=$(cat requirements/*.txt | cksum)
wanted="$choice $* $sum"
# What was installed for the tests serves everything else too.
for enough in "$wanted" "$choice dev check $sum"; do
  if [ "$(cat "$stamp" 2>/dev/null)" = "$enough" ]; then
    exit 0
  fi
done

python=$(find_python)
# Two TensorFlow wheels write the same files: another choice needs a new environment.
if [ -f "$stamp" ] && [ "$(cut -d' ' -f1 "$stamp")" != "$choice" ]; then
  rm -rf .venv
fi
site=""
[ "$choice" = system ] && site="--system-site-packages"
echo "setup: $("$python" --version), TensorFlow choice '$choice', into .venv (once; a few minutes)"
# shellcheck disable=SC2086
[ -x .venv/bin/python ] || "$python" -m venv $site .venv
# shellcheck disable=SC2086
.venv/bin/python -m pip install --quiet --disable-pip-version-check $requirements
echo "$wanted" > "$stamp"
