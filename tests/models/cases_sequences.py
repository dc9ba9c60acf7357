"""Models over histories; each statement is about one example at a time, without padding."""

import jax
import numpy as np

from .plain import DIM, Case, concat, each, history, layer_norm, linear, logits, mlp, relu, softmax, stop, unit, units


def silu(x):
    return x / (1 + np.exp(-x))


def target_attention(params, x, query):
    if not len(x):
        return np.zeros(x.shape[1])
    query = np.tile(np.append(query, np.zeros(x.shape[1] - len(query))), (len(x), 1))
    scores = mlp(params["mlp"], np.concatenate([query, x, query - x, query * x], axis=1)) @ params["linear"]["kernel"]
    return softmax(scores.T)[0] @ x


def multi_tower_din(params, x):
    deep = mlp(params["towers"][0]["mlp"], concat(x, "user", "age"))
    pairs = zip(history(x["clicks"], x["kinds"]), concat(x, "item"), strict=True)
    attention = np.stack([target_attention(params["din_towers"][0]["attention"], *pair) for pair in pairs])
    return {"logits": logits(params["logits"], np.concatenate([deep, attention], axis=1))}


def windows(params, x, query, sizes):
    scores = linear(params["linear"], mlp(params["mlp"], np.concatenate([x, x * query, 0 * x + query], axis=1)))
    scores = np.where(scores > 0, scores, params["activation"]["negative_slope"] * scores)
    parts, start = [], 0
    for size in sizes:
        here = slice(start, start + size)
        parts.append((scores * x)[here].sum(axis=0) / max(len(x[here]), 1))
        start += size
    return np.concatenate([*parts, query])


def tdm(params, x):
    pairs = zip(history(x["clicks"]), x["item"], strict=True)
    attention = np.stack([windows(params["attention"], *pair, (1, 2)) for pair in pairs])  # element 3 is cut off
    return {"logits": logits(params["logits"], np.concatenate([attention, concat(x, "user", "age")], axis=1))}


ROUTING = np.asarray(jax.random.normal(jax.random.key(0), (4, 3)), np.float64)


def squash(z):
    squares = (z * z).sum(axis=-1, keepdims=True)
    return squares / (1 + squares) * z / np.sqrt(squares) if squares.all() else np.zeros_like(z)


def capsules(params, x):
    """Three routing steps with scale 2; as many interests as log2 of the length, from 1 to 3."""
    low = x @ params["bilinear"]["kernel"]
    interests = np.zeros((3, low.shape[1]))
    if not len(x):
        return interests, 1
    count = int(np.ceil(np.clip(np.log2(len(x)), 1, 3)))
    constant, b = stop(low), ROUTING[: len(x), :count]
    for _ in range(2):
        b = b + unit(constant) @ squash(softmax(2 * b).T @ constant).T
    interests[:count] = squash(softmax(2 * b).T @ low)
    return interests, count


def mind(params, x):
    user = linear(params["user_mlp"]["layers"][0]["linear"], concat(x, "user", "age"))
    item = unit(linear(params["item_output"]["linear"], mlp(params["item_tower"]["mlp"], x["item"])))
    queries, interests = [], []
    for row, elements in enumerate(history(x["clicks"])):
        first, second = each(params["history_mlp"]["layers"])
        elements = relu(elements @ first["linear"]["kernel"]) @ second["linear"]["kernel"]
        found, count = capsules(params["capsules"], elements)
        both = np.concatenate([np.tile(user[row], (3, 1)), found], axis=1)
        made = unit(mlp(params["concat_mlp"], both) @ params["user_output"]["linear"]["kernel"])
        made[count:] = 0
        queries.append(softmax(3 * made[None, :count] @ item[row])[0] @ made[:count])
        interests.append(made)
    return {"query": np.stack(queries), "item": item, "interests": np.stack(interests)}


def hstu(params, x, times=None, reach=99):
    """Two layers, two heads, u and v of 3, q and k of 2 per head, N = 6; biases for 3 distances, 4 of time."""
    for index, layer in enumerate(each(params["layers"])):
        parts = silu(linear(layer["project"], layer_norm(layer["norm"], x)))
        u, v, q, k = np.split(parts, [6, 12, 16], axis=1)
        mixed = np.zeros((len(x), 6))
        for i in range(len(x)):
            for j in range(max(0, i - reach + 1), i + 1):
                bias = params["position"][index][min(i - j, 2)]
                if times is not None:
                    bias = bias + params["time"][index][min(int(np.sqrt(max(times[i] - times[j], 0) / 60)), 3)]
                for head in range(2):
                    dots = q[i, 2 * head : 2 * head + 2] @ k[j, 2 * head : 2 * head + 2]
                    mixed[i, 3 * head : 3 * head + 3] += silu(dots + bias) / 6 * v[j, 3 * head : 3 * head + 3]
        x = x + linear(layer["output"], layer_norm(layer["mixed_norm"], mixed) * u)
    return x


def dlrm_hstu(params, x):
    candidate = linear(params["linear"], x["item"])
    context = linear(params["contextual_linear"], concat(x, "user", "age"))
    rows = []
    for row, elements in enumerate(history(x["clicks"])):
        elements = linear(params["history"]["linear"], elements)
        elements = elements + history(x["kinds"])[row] @ params["history"]["action_linear"]["kernel"]
        times = np.append(history(x["when"])[row][:, 0], x["now"][row])
        times = np.append(times[0], times)
        tokens = np.concatenate([context[row : row + 1], elements, candidate[row : row + 1]])
        rows.append(hstu(params["hstu"], tokens, times)[-1])
    y = mlp(params["mlp"], layer_norm(params["norm"], np.stack(rows)))
    return {task: logits(tower, y) for task, tower in params["towers"]["tasks"].items()}


def dlrm_hstu_plain(params, x):
    candidate = linear(params["linear"], x["item"])
    rows = [
        hstu(params["hstu"], np.concatenate([linear(params["history"]["linear"], elements), candidate[row : row + 1]]))
        for row, elements in enumerate(history(x["clicks"]))
    ]
    y = unit(np.stack([tokens[-1] for tokens in rows]))
    return {task: logits(tower, y) for task, tower in params["towers"]["tasks"].items()}


def hstu_match(params, x):
    rows = []
    for elements in history(x["clicks"]):
        tokens = hstu(params["hstu"], linear(params["history"]["linear"], elements), reach=2)
        rows.append(tokens[-1] if len(tokens) else np.zeros(4))
    query = linear(params["user_output"]["linear"], layer_norm(params["norm"], np.stack(rows)))
    return {"query": query, "item": linear(params["item_output"]["linear"], x["item"])}


def self_attention(params, histories):
    """One layer, one head."""
    rows = []
    for elements in histories:
        dim = elements.shape[1]
        tokens = elements * dim**0.5 + params["position"][: len(elements)]
        for block in each(params["blocks"]):
            q, k, v = np.split(linear(block["project"], layer_norm(block["norm"], tokens)), 3, axis=1)
            scores = np.where(np.tri(len(tokens)) > 0, q @ k.T / dim**0.5, -np.inf)
            tokens = tokens + (softmax(scores) @ v if len(tokens) else 0)
            hidden = relu(linear(block["hidden"], layer_norm(block["hidden_norm"], tokens)))
            tokens = tokens + linear(block["output"], hidden)
        rows.append(layer_norm(params["norm"], tokens)[-1] if len(tokens) else np.zeros(elements.shape[1]))
    return np.stack(rows)


def sasrec(params, x):
    return {"query": self_attention(params["attention"], history(x["clicks"])), "item": x["item"]}


def tiger(params, x):
    query = self_attention(params["attention"], history(x["clicks"]))
    made = {}
    for layer, (decoder, head) in enumerate(zip(each(params["decoders"]), each(params["heads"]), strict=True)):
        known = [query, x["item"], x["shop"]][: layer + 1]
        made[f"code_{layer + 1}"] = linear(head, mlp(decoder, np.concatenate(known, axis=1)))
    return {**made, "query": query}


def token_layers(params, x):
    h = linear(params["hidden"], x)
    return layer_norm(params["norm"], linear(params["linear"], h / (1 + np.exp(-layer_norm(params["gate"], h)))))


def stu_norm(params, x):
    """A normalization whose epsilon is 1e-6."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * params["scale"] + params["bias"]


def stu(params, tokens, places, context, candidates):
    """The units of `STU` above, over tokens of context, history and candidates; positions are added."""
    x = 2 * tokens + params["position"][places]
    kinds = np.array([0] * context + [1] * (len(tokens) - context - candidates) + [2] * candidates)
    for layer in each(params["layers"]):
        u, v, q, k = np.split(silu(linear(layer["project"], stu_norm(layer["norm"], x))), [6, 12, 16], axis=1)
        mixed = np.zeros((len(x), 6))
        for i in range(len(x)):
            for j in range(len(x)):
                before = kinds[j] < kinds[i] or (kinds[i] == kinds[j] == 1 and j < i)
                if i == j or before or (kinds[i] == 0 and kinds[j] < 2):
                    for head in range(2):
                        dots = q[i, 2 * head : 2 * head + 2] @ k[j, 2 * head : 2 * head + 2]
                        mixed[i, 3 * head : 3 * head + 3] += silu(dots / 2**0.5) / 6 * v[j, 3 * head : 3 * head + 3]
        y = np.concatenate([u, mixed, stu_norm(layer["mixed_norm"], mixed) * u], axis=1)
        x = x + y @ layer["output"]["kernel"]
    return x


def hstu_ranker(params, x):
    own, rows = params["channels"][0], []
    for row, elements in enumerate(history(x["clicks"])):
        candidate = linear(own["candidate_linear"], x["item"][row : row + 1])
        tokens = np.concatenate([linear(own["linear"], elements), candidate])
        rows.append(stu(own["layers"], tokens, np.minimum(np.arange(len(tokens)), 2), 0, 1)[-1])
    y = layer_norm(own["post"]["norm"], np.stack(rows)) * token_layers(params["item"], x["item"])
    return {task: logits(tower, mlp(params["mlp"], y)) for task, tower in params["towers"]["tasks"].items()}


def hstu_retriever(params, x):
    own, rows = params["channel"], []
    for row, elements in enumerate(history(x["clicks"])):
        context = linear(own["context"]["layers"][0], concat(x, "user", "age")[row : row + 1])
        tokens = np.concatenate([context, linear(own["linear"], elements)])
        rows.append(stu(own["layers"], tokens, np.minimum(np.arange(len(tokens)), 2), 1, 0)[-1])
    query = linear(params["user_output"]["linear"], unit(np.stack(rows)))
    return {"query": query, "item": linear(params["item_output"]["linear"], x["item"])}


STU = {
    "embedding_dim": 4,
    "num_heads": 2,
    "hidden_dim": 3,
    "attention_dim": 2,
    "scaling_seqlen": 6,
    "attn_num_layers": 2,
    "num_position_buckets": 3,
}
TASKS = [{"task": "click", "mlp": units(3)}, {"task": "like", "num_classes": 2}]
SEQUENCES = [
    Case(
        "multi_tower_din",
        {
            "name": "multi_tower_din",
            "towers": [{"input": "deep", "mlp": units(4)}],
            "din_towers": [{"input": "history", "attn_mlp": units(6, 4)}],
            "final": units(5),
        },
        {"deep": ["user", "age"], "history": ["item", "clicks", "kinds"]},  # the candidate is shorter
        multi_tower_din,
    ),
    Case(
        "tdm",
        {"name": "tdm", "windows_len": [1, 2], "attn_mlp": units(5), "final": units(4)},
        {"history": ["item", "clicks"], "deep": ["user", "age"]},
        tdm,
    ),
    Case(
        "mind",
        {
            "name": "mind",
            "user_tower": {
                "input": "users",
                "history_input": "history",
                "user_mlp": units(4),
                "hist_seq_mlp": units(5, DIM),
                "capsule_config": {"high_dim": 3, "max_seq_len": 4, "max_k": 3, "routing_logits_scale": 2.0},
                "concat_mlp": units(7),
            },
            "item_tower": {"input": "items", "mlp": units(4)},
            "output_dim": 3,
            "simi_pow": 3.0,
        },
        {"users": ["user", "age"], "history": ["clicks"], "items": ["item"]},
        mind,
    ),
    Case(
        "dlrm_hstu",
        {"name": "dlrm_hstu", "hstu": {**STU, "num_time_buckets": 4}, "task_towers": TASKS, "mlp": units(5)},
        {
            "uih": ["clicks"],
            "uih_action": ["kinds"],
            "uih_timestamp": ["when"],
            "candidate": ["item"],
            "candidate_timestamp": ["now"],
            "contextual": ["user", "age"],
        },
        dlrm_hstu,
    ),
    Case(
        "dlrm_hstu_plain",
        {"name": "dlrm_hstu", "hstu": STU, "task_towers": TASKS, "postprocessor": "l2norm"},
        {"uih": ["clicks"], "candidate": ["item"]},
        dlrm_hstu_plain,
    ),
    Case(
        "hstu_match",
        {"name": "hstu_match", "hstu": {**STU, "max_attn_len": 2}, "item_tower": {"input": "items"}, "output_dim": 3},
        {"uih": ["clicks"], "items": ["item"]},
        hstu_match,
    ),
    Case(
        "sasrec",
        {
            **{"name": "sasrec", "item_tower": {"input": "items"}, "history_input": "uih", "max_length": 4},
            **{"num_layers": 1, "dropout_ratio": 0.0, "every_position": False},
        },
        {"uih": ["clicks"], "items": ["item"]},
        sasrec,
    ),
    Case(
        "tiger",
        {
            **{"name": "tiger", "codebook": [5, 3, 4], "history_input": "uih", "max_length": 4},
            **{"num_layers": 1, "dropout_ratio": 0.0},
        },
        {"uih": ["clicks"], "codes": ["item", "shop"]},
        tiger,
    ),
    Case(
        "hstu_ranker",
        {
            "name": "hstu_ranker",
            "channels": [{"stu": STU}],
            "item_hidden_dim": 3,
            "mlp": units(5),
            "task_towers": [{"task": "click", "mlp": units(3)}, {"task": "like", "num_classes": 2}],
        },
        {"uih": ["clicks"], "candidate": ["item"]},
        hstu_ranker,
    ),
    Case(
        "hstu_retriever",
        {
            "name": "hstu_retriever",
            "channel": {"stu": STU, "postprocessor": "l2norm", "concat_contextual_features": True},
            "item_tower": {"input": "items"},
            "output_dim": 3,
        },
        {"uih": ["clicks"], "items": ["item"], "contextual": ["user", "age"]},
        hstu_retriever,
    ),
]
