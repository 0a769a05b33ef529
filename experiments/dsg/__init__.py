"""Doubly stochastic gradients."""

TITLE = "Doubly stochastic gradients"
REFERENCE = (
    "B. Dai, B. Xie, N. He, Y. Liang, A. Raj, M.-F. Balcan, L. Song, *Scalable Kernel "
    "Methods via Doubly Stochastic Gradients*, NeurIPS 2014, and its long version, "
    "arXiv:1407.5599."
)
WITHOUT_DATA = {
    "Figure 7(2), CIFAR-10": "The images are not among the data, nor the network's features.",
    "Figure 7(3), ImageNet": "The images are not among the data, nor the network's features.",
    "Figure 7(5), MolecularSpace": "The 2.3 million molecules are not among the data.",
}
