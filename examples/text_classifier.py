"""Early exits for a text classifier of transformers: python examples/text_classifier.py MODEL TRAIN VALIDATION TEST.

MODEL is a folder that `save_pretrained` wrote, with the tokenizer in it. The others are CSV files with the columns
`text` and `label`; the network must not have been trained on VALIDATION and TEST. For example, with a classifier of
your own:

    python examples/text_classifier.py ./my-model train.csv validation.csv test.csv

Needs `offramp[text,transformers]`.
"""

import sys
import tempfile
import time

import offramp
from offramp.data import open_data

folder, train, validation, test = sys.argv[1:5]

# One pass of the network over the data, then exits after its layers. Names of classes come from its configuration.
model = offramp.fit(f"hf:{folder}", train, validation)
print(model.frontier)

# The cheapest point that is not expected to be worse than the network itself.
fast = model.at(accuracy=model.full_accuracy)
print(fast.evaluate(test))

# The answers have names and probabilities; `to_pipeline` gives them as a pipeline of transformers does.
held_out = open_data(test)
texts = list(held_out.read(0, len(held_out)).inputs)
print(fast.predict(texts[:3]).to_pipeline())

# Time on this machine, in batches of 32.
batches = [texts[start : start + 32] for start in range(0, len(texts), 32)]
started = time.perf_counter()
exits = [fast.predict(batch).exits for batch in batches]
print(f"{len(texts)} texts in {time.perf_counter() - started:.2f} s; the first batch left at {exits[0].tolist()}")

# The artifact holds the network and the tokenizer: nothing else is needed to load it.
out = tempfile.mkdtemp()
fast.save(out)
assert offramp.load(out).predict(texts[:3]).names == fast.predict(texts[:3]).names
print(f"saved in {out}")
