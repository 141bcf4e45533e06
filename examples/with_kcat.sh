#!/bin/sh
# First message with kcat: apt install kcat; sh with_kcat.sh [host:port]
set -e
broker=${1:-127.0.0.1:9092}

echo "kcat:hello from kcat" | kcat -b "$broker" -P -t greetings -K :
kcat -b "$broker" -C -t greetings -o beginning -e -q -f '%k:%s\n' | sed -n 's/^kcat://p' | head -n 1
