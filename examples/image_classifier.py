"""Early exits for an image classifier of timm: python examples/image_classifier.py NAME WEIGHTS TRAIN VALIDATION TEST.

NAME is a model of timm, WEIGHTS the file of its weights after your training (safetensors, or a state dict of torch).
The others are folders of images with one sub-folder per class; the network must not have been trained on VALIDATION
and TEST:

    python examples/image_classifier.py resnet18 my-weights.safetensors images/train images/validation images/test

Needs `offramp[images,timm]`; beside it, a torchvision that fits your torch.
"""

import sys
import tempfile

import offramp
from offramp.data import open_data

name, weights, train, validation, test = sys.argv[1:6]

# Images of any size: the preprocessing is that of timm's weights of this name, and is saved with the model. The classes
# are the sub-folders, sorted, as in torchvision: the network was trained with that order.
classes = open_data(train).classes
model = offramp.fit(f"timm:{name},weights={weights}", train, validation, classes=classes)
print(model.frontier)

# Half of the full network's operations, on average.
fast = model.at(cost=0.5)
print(fast.evaluate(test))

# One answer per image: label, confidence, the exit it left at, and its cost.
pictures = open_data(test)
rows = pictures.read(0, len(pictures))
answer = fast.predict(rows.inputs)
for given, row in list(zip(rows.labels, answer.to_dicts(), strict=True))[:5]:
    cost = 100 * row["relative_cost"]
    print(f"{classes[given]:>12}: {row['label']} at exit {row['exit']}, {cost:.0f} % of the cost")

# Hard images: those that needed the whole network, the least certain first.
last = int(answer.exits.max())
hard = [row for row in answer.probabilities.amax(1).argsort().tolist() if answer.exits[row] == last]
print(f"{len(hard)} of {len(answer)} images needed exit {last}; the least certain are {hard[:5]}")

# The same model at another cost, per batch or per image, without a new fit.
for budget in (0.3, 0.6, 0.9):
    try:
        print(f"at most {budget:.0%}: mean cost {fast.predict(rows.inputs, budget=budget).relative_cost.mean():.2f}")
    except offramp.errors.BudgetError as error:
        print(error)

out = tempfile.mkdtemp()
fast.save(out)  # with the weights
print(f"saved in {out}; try: offramp predict {out} --data {test} --out answers.csv")
