"""Rival methods, exits and policies, registered by entry points.

The rivals' rules are those of

* [Teerapittayanon2016] Teerapittayanon, McDanel, Kung: BranchyNet: Fast Inference via Early Exiting from Deep Neural
  Networks, ICPR 2016;
* [Huang2018] Huang, Chen, Li, Wu, van der Maaten, Weinberger: Multi-Scale Dense Networks for Resource Efficient Image
  Classification, ICLR 2018;
* [Zhou2020] Zhou, Xu, Ge, McAuley, Xu, Wei: BERT Loses Patience: Fast and Robust Inference with Early Exit,
  NeurIPS 2020;
* [Scardapane2020] Scardapane, Comminiello, Scarpiniti, Baccarelli, Uncini: Differentiable Branching in Deep Networks
  for Fast Inference, ICASSP 2020;
* [Lahiany2022] Lahiany, Aperstein: PTEENet: Post-Trained Early-Exit Neural Networks Augmentation for Inference Cost
  Optimization, IEEE Access 2022;
* [Ilhan2024] Ilhan and others: Adaptive Deep Neural Network Inference Optimization with EENet, WACV 2024.
"""
