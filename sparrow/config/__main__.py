"""``python -m sparrow.config`` prints the JSON schema of configs, for editors; schema.json beside it is its output."""

import json

from sparrow.config import json_schema

if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1, sort_keys=True))
