import sys; sys.path.insert(0,"benchmarks"); sys.argv=["x"]
import ids as b
print(b.step_time(1_048_576, 8_388_608, 128, 1.05), flush=True)
print(b.step_time(1_048_576, 16_000_000, 128, 0.0), flush=True)
print(b.map_times(26,1_000_000,16384,8_000_000,200), flush=True)
