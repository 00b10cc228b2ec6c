/* The histograms that `_bytes_path.c` adds to. */

#define MAX_BOUNDS 16 /* of a histogram */

/* A gateway.guard.findings.Histogram, and what is to be added to it. */
typedef struct {
    PyObject *self, *counts; /* borrowed from the path; a reference */
    Py_ssize_t size;
    double bounds[MAX_BOUNDS];
    Py_ssize_t seen[MAX_BOUNDS + 1];
    double total; /* with what is to be added, once it has been read */
} Histogram;

/* -1 with an exception. */
static int open_histogram(Histogram *histogram, PyObject *self)
{
    PyObject *bounds = PyObject_GetAttrString(self, "bounds");
    histogram->self = self;
    histogram->counts = PyObject_GetAttrString(self, "counts");
    if (bounds != NULL && histogram->counts != NULL) {
        histogram->size = PyTuple_Check(bounds) ? PyTuple_Size(bounds) : MAX_BOUNDS + 1;
        if (histogram->size > MAX_BOUNDS || !PyList_Check(histogram->counts))
            PyErr_SetString(PyExc_ValueError, "a histogram has up to 16 bounds in a tuple, and its counts in a list");
        for (Py_ssize_t at = 0; !PyErr_Occurred() && at < histogram->size; at++)
            histogram->bounds[at] = PyFloat_AsDouble(PyTuple_GetItem(bounds, at));
    }
    Py_XDECREF(bounds);
    return PyErr_Occurred() ? -1 : 0;
}

/* -1 with an exception. */
static int read_total(Histogram *histogram)
{
    PyObject *total = get(histogram->self, &names.total);
    histogram->total = total == NULL ? -1.0 : PyFloat_AsDouble(total);
    Py_XDECREF(total);
    return PyErr_Occurred() ? -1 : 0;
}

static void observe(Histogram *histogram, double value)
{
    Py_ssize_t at = 0;
    while (at < histogram->size && histogram->bounds[at] < value)
        at++;
    histogram->seen[at]++;
    histogram->total += value;
}

/* Adds what was observed; -1 with an exception. */
static int write_histogram(Histogram *histogram)
{
    for (Py_ssize_t at = 0; at <= histogram->size; at++) {
        const Py_ssize_t seen = histogram->seen[at];
        if (seen == 0)
            continue;
        histogram->seen[at] = 0;
        PyObject *count = PyList_GetItem(histogram->counts, at); /* borrowed; checks the index */
        const Py_ssize_t before = count == NULL ? -1 : PyLong_AsSsize_t(count);
        if (before == -1 && PyErr_Occurred())
            return -1;
        count = PyLong_FromSsize_t(before + seen);
        if (count == NULL || PyList_SetItem(histogram->counts, at, count) < 0)
            return -1;
    }
    PyObject *total = PyFloat_FromDouble(histogram->total);
    const int done = total == NULL ? -1 : set(histogram->self, &names.total, total);
    Py_XDECREF(total);
    return done;
}
