"""S3GD: stochastic gradients made stable."""

TITLE = "S3GD: stochastic gradients made stable"
REFERENCE = (
    "Y. Mu, W. Liu, W. Fan, *Stochastic Gradient Made Stable: A Manifold Propagation "
    "Approach for Large-Scale Optimization*, IEEE Transactions on Knowledge and Data "
    "Engineering, 2017."
)
WITHOUT_DATA: dict[str, str] = {}
