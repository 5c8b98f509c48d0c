// Reads CDI files with CDI's own library, as container runtimes do: cdi_library FOLDER.
//
// Prints as JSON, by the name of each file: why it is refused, or the lowest version that it needs; and why one of its
// devices cannot be injected.
package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type verdict struct {
	Refused  string `json:"refused"`
	Version  string `json:"version"`
	Injected string `json:"injected"`
}

func main() {
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.json"))
	if err != nil {
		panic(err)
	}
	found := map[string]verdict{}
	for _, file := range files {
		found[filepath.Base(file)] = read(file)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

func read(file string) (said verdict) {
	spec, err := cdi.ReadSpec(file, 0)
	if err != nil {
		said.Refused = err.Error()
		return said
	}
	if said.Version, err = cdi.MinimumRequiredVersion(spec.Spec); err != nil {
		said.Refused = err.Error()
		return said
	}
	for _, device := range spec.Devices {
		edits := cdi.ContainerEdits{ContainerEdits: &device.ContainerEdits}
		if err := edits.Apply(&oci.Spec{}); err != nil {
			said.Injected = err.Error()
		}
	}
	return said
}
