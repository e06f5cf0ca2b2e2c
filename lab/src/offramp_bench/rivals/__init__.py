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
* [Wolczyk2021] Wolczyk and others: Zero Time Waste: Recycling Predictions in Early Exit Neural Networks,
  NeurIPS 2021, called [ZTW];
* [Lahiany2022] Lahiany, Aperstein: PTEENet: Post-Trained Early-Exit Neural Networks Augmentation for Inference Cost
  Optimization, IEEE Access 2022;
* [Ilhan2024] Ilhan and others: Adaptive Deep Neural Network Inference Optimization with EENet, WACV 2024;
* [Kolawole2024] Kolawole, Dennis, Talwalkar, Smith: Agreement-Based Cascading for Efficient Inference,
  arXiv 2407.02348, 2024;
* [Mofakhami2024] Mofakhami, Bayat, Mitliagkas, Monteiro, Zantedeschi: Performance Control in Early Exiting to Deploy
  Large Models at the Same Cost of Smaller Ones, arXiv 2412.19325, 2024;
* [Bajpai2025] Bajpai, Hanawal: BEEM: Boosting Performance of Early Exit DNNs using Multi-Exit Classifiers as Experts,
  ICLR 2025;
* [Aperstein2026] Aperstein, Apartsin: CalexNet: Soft Cascade-Aligned Training and Calibration for Lightweight
  Early-Exit Branches, Electronics 2026, arXiv 2509.08318.
"""
