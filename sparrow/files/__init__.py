"""Files here and in other stores; files that appear complete or not at all."""

from sparrow.files.atomic import exchange, replace_file, replacing, sync, write_durably
from sparrow.files.memory import give_back, proc_bytes
from sparrow.files.mirror import Mirror, fetched, fill, send_folder, working_copy
from sparrow.files.output import drop_output
from sparrow.files.paths import UnsafePath, check_parquet, inside, json_object, text_of
from sparrow.files.python import run_file
from sparrow.files.remote import AnyPath, Remote, at, is_remote, matching
from sparrow.files.tensors import CODES, Streamed, dtype_of, streamed, write_tensors
