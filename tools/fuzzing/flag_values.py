"""Odd values of flags."""

# WORK is replaced by the folder of the case: other paths would be written to, or never end.
_PATHS = (
    *("WORK/data", "WORK/model", "WORK/new/er", "WORK/file", "WORK/file/x", "/dev/full"),
    "/dev/null/x",
)
VALUES = (
    *("", " ", "0", "1", "2", "-1", "1e308", "-0.0", "nan", "inf", "0x10", "1_0", "٣"),
    *("99999999999999999999999999", "2147483648", "9223372036854775807", "true", "None", ","),
    *(",,a,", "a,a", "=", "a=b", "a=b=c,d", "%s", "{}", "{0.__class__}", "\\", "'", '"', "*"),
    *("(", "(a+)+$", "[", "..", "../x", "x" * 5000, "a\nb", "\x1b[31m", "\udcff", "é"),
    *("\u202e", "8x8", "0x8", "1000000x1000000", "8x8x8", "best", "average:2", "average:99"),
    *("average:-1", "average:²", "os:getcwd", "os.path:no.such", ":", "a:", ":b", "tfds:"),
    *("synthetic", "crop:4 flip", "crop:999999", "crop", "train", "test", "accuracy"),
    *("confusion_matrix", "v3-8", "1x0", "0x2", "999999999999x2", "balanced", "effective:0.9"),
    *_PATHS,
)
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 100, 10**6, 2**31 - 1, 2**31, 2**63 - 1, 2**63)
PARAMS = (
    *("hidden_units", "dropout", "learning_rate", "schedule", "optimizer", "warmup_steps"),
    *("decay_boundaries", "label_smoothing", "ema_decay", "weight_decay", "clip_norm"),
    *("num_classes", "pixel_scale", "class_weights", "loss", "threshold", "huber_delta"),
)
