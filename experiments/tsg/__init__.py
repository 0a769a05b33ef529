"""Triply stochastic gradients for semi-supervised SVMs."""

TITLE = "Triply stochastic gradients for semi-supervised SVMs"
REFERENCE = (
    "X. Geng, B. Gu, X. Li, W. Shi, G. Zheng, H. Huang, *Scalable Semi-Supervised SVM via "
    "Triply Stochastic Gradients*, IJCAI 2019."
)
WITHOUT_DATA = {
    "Figures 2 to 4, panels b and d to h": "W6a, SUSY, Skin, Higgs, Dota2, HEPMASS: no data at "
    "hand. Figure 2 has two moons of a million rows in their place."
}
