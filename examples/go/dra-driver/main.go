// A DRA driver in Go that passes `nodeplug kubelet verify`, with upstream's kubeletplugin helper: two devices, and a CDI
// file for each claim.
//
//	nodeplug kubelet verify --dra -- ./dra-driver -kubelet {kubelet} -kubeconfig {kubeconfig} -node {node} -cdi FOLDER
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const name = "gopher.example.com"

type driver struct{ cdi string }

// The kubelet calls this again after each of its restarts; the answer must be the same.
func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	var prepared []kubeletplugin.Device
	var described []any
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != name {
			continue // a device of another driver
		}
		id := string(claim.UID) + "-" + result.Device
		edits := map[string]any{"env": []string{"GOPHER=" + result.Device}}
		described = append(described, map[string]any{"name": id, "containerEdits": edits})
		prepared = append(prepared, kubeletplugin.Device{Requests: []string{result.Request}, PoolName: result.Pool,
			DeviceName: result.Device, CDIDeviceIDs: []string{name + "/claim=" + id}})
	}
	spec, err := json.Marshal(map[string]any{"cdiVersion": "0.5.0", "kind": name + "/claim", "devices": described})
	if err != nil {
		return nil, err
	}
	draft := d.file(claim.UID) + ".draft" // so that a runtime reads either the whole file or none
	if err := os.WriteFile(draft, spec, 0o644); err != nil {
		return nil, err
	}
	return prepared, os.Rename(draft, d.file(claim.UID))
}

// The kubelet calls this until it succeeds, also for claims that were never prepared.
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (
	map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(d.file(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = err
	}
	return results, nil
}

// Never called, because the health service is disabled below.
func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
}

func (d *driver) file(claim types.UID) string {
	return filepath.Join(d.cdi, "gopher-"+string(claim)+".json")
}

func main() {
	node := flag.String("node", os.Getenv("NODE_NAME"), "the node's name")
	kubelet := flag.String("kubelet", "/var/lib/kubelet", "the kubelet's folder")
	cdi := flag.String("cdi", "/var/run/cdi", "the folder for CDI files")
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the kubeconfig for the API server")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := run(ctx, *node, *kubelet, *cdi, *kubeconfig); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, node, kubelet, cdi, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(kubelet, "plugins", name)
	if err := errors.Join(os.MkdirAll(data, 0o750), os.MkdirAll(cdi, 0o755)); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, &driver{cdi}, kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(node), kubeletplugin.DriverName(name), kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(kubelet, "plugins_registry")),
		kubeletplugin.HealthService(false))
	if err != nil {
		return err
	}
	defer helper.Stop()
	devices := []resourceapi.Device{{Name: "a"}, {Name: "b"}}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	err = helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
