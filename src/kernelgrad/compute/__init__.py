"""Hot loops on plain arrays and integers; no idea of losses or kernels."""
