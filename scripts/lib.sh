# Shared by the scripts beside it: find Python, make the environment, install what only root can.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '\n== %s\n' "$*"; }

as_root() { # run a command as root, or say what to do by hand
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null 2>&1; then sudo "$@"
  else printf 'needs root (or sudo): %s\n' "$*" >&2; return 1; fi
}

need_packages() { # Debian packages, installed only when missing
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

find_python() { # the first Python that is new enough
  local candidate
  for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 /usr/bin/python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      # Not a virtual environment's own link: .venv may be the one that is made anew.
      "$candidate" -c 'import sys; print(sys._base_executable)'
      return 0
    fi
  done
  echo 'Python 3.11 or newer is needed: apt-get install python3 python3-venv' >&2
  return 1
}

make_environment() { # .venv with everything, made again when pyproject.toml changes
  local python stamp
  python=$(find_python)
  stamp=".venv/made-for-$(cat pyproject.toml <("$python" --version) | sha256sum | cut -c1-16)"
  [ -e "$stamp" ] && return 0
  "$python" -c 'import ensurepip, venv' 2>/dev/null || need_packages python3-venv
  say "making .venv"
  rm -rf .venv
  "$python" -m venv .venv
  .venv/bin/pip install -q -e '.[dev]'
  # The validator of RO-Crates needs an older rich than ours, and the context of RO-Crate 1.1, which rocrate 0.10 has.
  "$python" -m venv .venv/validator
  .venv/validator/bin/pip install -q 'roc-validator==0.13.0' 'rocrate==0.10.0'
  touch "$stamp"
}
