"""S3GD: stochastic gradients made stable."""

TITLE = "S3GD: stochastic gradients made stable"
REFERENCE = (
    "Y. Mu, W. Liu, W. Fan, *Stochastic Gradient Made Stable: A Manifold Propagation "
    "Approach for Large-Scale Optimization*, arXiv:1506.08350, 2015."
)
WITHOUT_DATA = {
    "Figures 2 to 9 on WebSpam, CIFAR10, Kaggle-Face, MED11, KDD04_bio and KDD04_phy": (
        "No data at hand; other sets stand in."
    )
}
