"""What a pod costs in each scene of docs/performance.md, in opcodes, which are the same on every machine."""
