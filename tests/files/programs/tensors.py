"""torch: save, load, and load through a mapping."""

import mounted

try:
    import torch
except ImportError:
    mounted.skip("torch is missing")

mounted.enter()
state = {"w": torch.arange(100_000, dtype=torch.float32).reshape(100, 1000), "step": 7, "b": torch.ones(3, dtype=torch.bfloat16)}
for how in (True, False):
    torch.save(state, "model.pt", _use_new_zipfile_serialization=how)
    loaded = torch.load("model.pt")
    assert loaded["step"] == 7 and torch.equal(loaded["w"], state["w"]) and torch.equal(loaded["b"], state["b"])
torch.save(state, "model.pt")
mapped = torch.load("model.pt", mmap=True)
torch.save({"w": torch.zeros(100, 1000)}, "model.pt")
assert torch.equal(mapped["w"], state["w"]), "a mapped file changed when it was saved again"
shared = torch.from_file("raw", shared=True, size=1000)
shared.fill_(3)
assert torch.equal(torch.from_file("raw", size=1000), torch.full((1000,), 3.0))
