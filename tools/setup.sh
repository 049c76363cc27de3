#!/bin/sh
# Makes .venv with the locked requirements: tools/setup.sh CHOICE [EXTRA ...]
#   EXTRA   text | detection | audio | heic | report | text_ops | cloud | serving | check | pjrt | dev (requirements/EXTRA.txt)
#   CHOICE  tensorflow | cpu | gpu | system (requirements/CHOICE.txt); 'system' keeps the TensorFlow
#           that the machine's image brings, which on a Cloud TPU VM is the only one that drives it.
#           'same': the one in .venv; in a new .venv, tensorflow.
set -eu
cd "$(dirname "$0")/.."
choice=$1
shift

# The first line of the stamp tells what is installed, the second from which locked files.
stamp=".venv/.installed"
installed=$(sed -n 1p "$stamp" 2>/dev/null || true)
if [ "$choice" = same ]; then
  choice=${installed%% *}
  choice=${choice:-tensorflow}
fi

if [ ! -f "requirements/$choice.txt" ]; then
  echo "setup: TENSORFLOW=$choice is unknown: use tensorflow, cpu, gpu, system or same" >&2
  exit 2
fi

for name in "$@"; do
  if [ ! -f "requirements/$name.txt" ]; then
    echo "setup: there is no extra '$name': use text, detection, audio, heic, report, text_ops, cloud, serving, check, pjrt or dev" >&2
    exit 2
  fi
done

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

sum=$(cat requirements/*.txt | cksum)
missing=""
[ "$(sed -n 2p "$stamp" 2>/dev/null || true)" = "$sum" ] || missing="all"
for name in "$choice" "$@"; do
  case " $installed " in *" $name "*) ;; *) missing="$missing $name" ;; esac
done
[ -n "$missing" ] || exit 0

python=$(find_python)
# One setup at a time installs into a folder. The lock ends with the last process that inherits it.
if [ -z "${SETUP_IS_LOCKED:-}" ]; then
  SETUP_IS_LOCKED=1 exec "$python" -c '
import fcntl, os, sys
lock = os.open(".", os.O_RDONLY)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("setup: waiting for another setup of this folder", flush=True)
    fcntl.flock(lock, fcntl.LOCK_EX)
except OSError:  # a file system without locks
    pass
os.set_inheritable(lock, True)
os.execv("/bin/sh", ["sh", "tools/setup.sh", *sys.argv[1:]])
' "$choice" "$@"
fi
# Two TensorFlow wheels write the same files: another choice needs a new environment.
if [ -n "$installed" ] && [ "${installed%% *}" != "$choice" ]; then
  echo "setup: .venv has the TensorFlow choice '${installed%% *}', not '$choice': making it again"
  rm -rf .venv
  installed=""
fi
wanted="$choice $*"
for name in $installed; do
  case " $wanted " in
    *" $name "*) ;;
    *) [ ! -f "requirements/$name.txt" ] || wanted="$wanted $name" ;;
  esac
done
requirements=""
for name in $wanted; do
  requirements="$requirements -r requirements/$name.txt"
done
site=""
[ "$choice" = system ] && site="--system-site-packages"
echo "setup: $("$python" --version), TensorFlow choice '$choice', into .venv (once; a few minutes)"
# Also if one was stopped before it got pip.
# shellcheck disable=SC2086
.venv/bin/python -m pip --version > /dev/null 2>&1 || "$python" -m venv $site .venv
# shellcheck disable=SC2086
.venv/bin/python -m pip install --quiet --disable-pip-version-check $requirements
printf '%s\n%s\n' "$wanted" "$sum" > "$stamp"
