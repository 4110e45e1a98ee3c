#!/bin/sh
# Puts Python 3.11 for ARM of 64 bits, of the Debian whose sources this machine has, in build/arm64/root, and packages
# with code of ARM in build/arm64/site.
# torch 2.8 is the newest whose package for ARM needs no CUDA.
set -e
mkdir -p build/arm64 && cd build/arm64
mkdir -p state/lists/partial cache/archives/partial root
: > status
cat > apt.conf <<END
Dir::State "$PWD/state";
Dir::State::status "$PWD/status";
Dir::Cache "$PWD/cache";
APT::Architecture "arm64";
APT::Architectures {"arm64";};
END
export APT_CONFIG="$PWD/apt.conf"
apt-get update
apt-get -y -d --no-install-recommends install python3.11 libstdc++6 libgomp1
for package in cache/archives/*.deb; do dpkg-deb -x "$package" root; done
pip install --no-deps --target site --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 \
    --only-binary=:all: --python-version 3.11 torch==2.8.0 numpy "$(grep ^pydantic_core ../../constraints.txt)" safetensors tokenizers
