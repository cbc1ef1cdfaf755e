# Functions of the scripts: progress output, and installation of missing tools by package name.

step() { printf '\n=== %s (%ss)\n' "$1" "$SECONDS"; }

need_cargo() { # command, package
  command -v "$1" >/dev/null || { step "installing $2 with cargo"; cargo install --locked --quiet "$2"; }
}

need_apt() { # packages; each as NAME, if it has a command of that name, or as NAME=FILE-PATTERN
  local missing=() entry package file
  for entry in "$@"; do
    package="${entry%%=*}" file="${entry#*=}"
    if [ "$file" = "$package" ]; then command -v "$package" >/dev/null; else compgen -G "$file" >/dev/null; fi ||
      missing+=("$package")
  done
  if ((${#missing[@]})); then
    local as_root=()
    if ((EUID == 0)); then
      step "installing ${missing[*]} with apt-get"
    else
      step "installing ${missing[*]} with sudo apt-get"
      as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y "${missing[@]}" >/dev/null
  fi
}
