#!/usr/bin/env bash
# A hook that a person answers at the terminal. The `nats` command line runs this for each request:
#     hookbus hooks add by-hand --encoding json --tools 'deploy*'
#     nats reply 'tool.before.by-hand.*' --queue by-hand --command 'bash examples/by_hand.sh'
body=$NATS_REQUEST_BODY
digest=$(printf %s "$body" | sha256sum | cut -d ' ' -f 1)
terminal=${TERMINAL:-/dev/tty}

answer() { printf '{"decision":"%s","reason":"%s","request_digest":"%s"}\n' "$1" "$2" "$digest"; }

printf '%s\nMay it run? [y/N] ' "$body" >"$terminal"
if ! IFS= read -r -t 4 said <"$terminal"; then
  answer error "nobody answered within 4 s"
elif [ "$said" = y ]; then
  answer allow ""
else
  answer deny "the person at the terminal said no"
fi
