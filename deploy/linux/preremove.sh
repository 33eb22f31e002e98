#!/bin/sh
# Before the package is removed, and not when it is upgraded: dpkg says "remove", and rpm how many will be left. The
# counts stay in /var/lib/private/quipu.
set -e
case "$1" in
remove | 0)
  if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now quipu.service
  fi
  ;;
esac
