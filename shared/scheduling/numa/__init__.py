"""Would the kubelet admit it: its Topology, CPU, Memory and Device Managers as pure rules."""
