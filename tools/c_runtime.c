/* Runs a SavedModel by TensorFlow's C API, whose loader is that of TensorFlow Serving.

   c_runtime SAVED_MODEL REPEATS (i NAME:INDEX FILE)... (o NAME:INDEX FILE)...

   A file holds a tensor: int32 type, int32 rank, int64 dimensions, then the numbers; of strings
   each an int64 length and its bytes. Prints the median microseconds of a run. Errors go to
   stderr, with exit status 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { MAX_TENSORS = 16, MAX_RANK = 8 };

static void fail(const char *message) {
  fprintf(stderr, "%s\n", message);
  exit(1);
}

static void check(const TF_Status *status) {
  if (TF_GetCode(status) != TF_OK) fail(TF_Message(status));
}

static void read_bytes(FILE *file, void *to, size_t size) {
  if (fread(to, 1, size, file) != size) fail("an input file is too short");
}

static TF_Tensor *read_tensor(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail("an input file cannot be read");
  int32_t head[2];
  int64_t dims[MAX_RANK], count = 1;
  read_bytes(file, head, sizeof head);
  if (head[1] > MAX_RANK) fail("an input file has too many dimensions");
  read_bytes(file, dims, head[1] * sizeof *dims);
  for (int i = 0; i < head[1]; i++) count *= dims[i];
  size_t element = head[0] == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(head[0]);
  TF_Tensor *tensor = TF_AllocateTensor(head[0], dims, head[1], count * element);
  char *data = TF_TensorData(tensor);
  if (head[0] != TF_STRING) read_bytes(file, data, count * element);
  for (int64_t i = 0; head[0] == TF_STRING && i < count; i++) {
    int64_t length;
    read_bytes(file, &length, sizeof length);
    char *text = malloc(length + 1);
    read_bytes(file, text, length);
    TF_StringInit((TF_TString *)data + i);
    TF_StringCopy((TF_TString *)data + i, text, length);
    free(text);
  }
  fclose(file);
  return tensor;
}

static void write_tensor(const char *path, const TF_Tensor *tensor) {
  FILE *file = fopen(path, "wb");
  if (!file) fail("an output file cannot be written");
  int32_t head[2] = {TF_TensorType(tensor), TF_NumDims(tensor)};
  fwrite(head, sizeof head, 1, file);
  for (int i = 0; i < head[1]; i++) {
    int64_t dim = TF_Dim(tensor, i);
    fwrite(&dim, sizeof dim, 1, file);
  }
  const TF_TString *strings = TF_TensorData(tensor);
  if (head[0] != TF_STRING) fwrite(strings, 1, TF_TensorByteSize(tensor), file);
  for (int64_t i = 0; head[0] == TF_STRING && i < TF_TensorElementCount(tensor); i++) {
    int64_t length = TF_StringGetSize(strings + i);
    fwrite(&length, sizeof length, 1, file);
    fwrite(TF_StringGetDataPointer(strings + i), 1, length, file);
  }
  if (fclose(file)) fail("an output file cannot be written");
}

static TF_Output find(TF_Graph *graph, char *name) {
  char *colon = strrchr(name, ':');
  if (!colon) fail("a tensor is named OPERATION:INDEX");
  *colon = 0;
  TF_Output output = {TF_GraphOperationByName(graph, name), atoi(colon + 1)};
  if (!output.oper) fail("there is no operation of that name");
  return output;
}

static int64_t microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static int by_size(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc < 6 || argc % 3) fail("c_runtime SAVED_MODEL REPEATS (i|o NAME:INDEX FILE)...");
  TF_Status *status = TF_NewStatus();
  TF_Graph *graph = TF_NewGraph();
  const char *tags[] = {"serve"};
  TF_Session *session = TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), NULL, argv[1], tags, 1,
                                                     graph, NULL, status);
  check(status);

  TF_Output inputs[MAX_TENSORS], outputs[MAX_TENSORS];
  TF_Tensor *fed[MAX_TENSORS], *fetched[MAX_TENSORS];
  const char *paths[MAX_TENSORS];
  int num_inputs = 0, num_outputs = 0;
  for (int i = 3; i < argc; i += 3) {
    if (num_inputs == MAX_TENSORS || num_outputs == MAX_TENSORS) fail("too many tensors");
    if (*argv[i] == 'i') {
      inputs[num_inputs] = find(graph, argv[i + 1]);
      fed[num_inputs++] = read_tensor(argv[i + 2]);
    } else {
      outputs[num_outputs] = find(graph, argv[i + 1]);
      paths[num_outputs++] = argv[i + 2];
    }
  }

  int repeats = atoi(argv[2]) > 0 ? atoi(argv[2]) : 1;
  int64_t *times = malloc(repeats * sizeof *times);
  for (int i = 0; i < repeats; i++) {
    int64_t start = microseconds();
    TF_SessionRun(session, NULL, inputs, fed, num_inputs, outputs, fetched, num_outputs, NULL, 0,
                  NULL, status);
    check(status);
    times[i] = microseconds() - start;
    if (i < repeats - 1)
      for (int k = 0; k < num_outputs; k++) TF_DeleteTensor(fetched[k]);
  }
  for (int k = 0; k < num_outputs; k++) write_tensor(paths[k], fetched[k]);
  qsort(times, repeats, sizeof *times, by_size);
  printf("%lld\n", (long long)times[repeats / 2]);
  return 0;
}
