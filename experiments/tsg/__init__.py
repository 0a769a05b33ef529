"""Triply stochastic gradients for semi-supervised SVMs."""

TITLE = "Triply stochastic gradients for semi-supervised SVMs"
REFERENCE = (
    "X. Geng, B. Gu, X. Li, W. Shi, G. Zheng, H. Huang, *Scalable Semi-Supervised SVM via "
    "Triply Stochastic Gradients*, IJCAI 2019."
)
WITHOUT_DATA: dict[str, str] = {}
