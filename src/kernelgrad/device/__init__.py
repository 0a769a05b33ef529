"""Kernel values and random features on a device, by torch: tiles of rows come in and go out."""

from kernelgrad.device.backend import DeviceBlockMatrix, TorchDevice, get_device
from kernelgrad.device.features import DeviceFeatures
from kernelgrad.device.kernels import KernelTiles, check_feature_kernel, check_tiles

__all__ = [
    "DeviceBlockMatrix",
    "DeviceFeatures",
    "KernelTiles",
    "TorchDevice",
    "check_feature_kernel",
    "check_tiles",
    "get_device",
]
