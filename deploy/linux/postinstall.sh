#!/bin/sh
# After the package is installed or upgraded. A server that runs goes on with the new program.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart quipu.service
fi
