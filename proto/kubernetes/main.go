// Facts about Kubernetes' protobuf, from upstream's own Go types.
//
//	go run . messages > ../../controlplane/apiserver/protobuf/messages.txt
//	go run . samples | gzip -9n > ../../tests/controlplane/apiserver/data/protobuf.jsonl.gz
//
// The published .proto files do not say enough: proto2's `optional` stands for Go's pointers (left out when nil) and for
// plain values (always written, even when zero) alike, and JSON has other names in places. The types say both.
package main

import (
	"fmt"
	"os"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv2 "k8s.io/api/apidiscovery/v2"
	discoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// What the stand-in serves, by group version; each with its list where it has one.
var kinds = []struct {
	version schema.GroupVersion
	names   []string
}{
	{metav1.SchemeGroupVersion, []string{"APIVersions", "APIGroup", "APIGroupList", "APIResourceList", "DeleteOptions",
		"PartialObjectMetadata", "Status"}},
	{metav1beta1.SchemeGroupVersion, []string{"PartialObjectMetadata"}},
	{discoveryv2.SchemeGroupVersion, []string{"APIGroupDiscovery"}},
	{discoveryv2beta1.SchemeGroupVersion, []string{"APIGroupDiscovery"}},
	{corev1.SchemeGroupVersion, []string{"Binding", "ComponentStatus", "ConfigMap", "Endpoints", "Event", "LimitRange",
		"Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate", "ReplicationController",
		"ResourceQuota", "Secret", "Service", "ServiceAccount"}},
	{admissionregistrationv1.SchemeGroupVersion, []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration"}},
	{appsv1.SchemeGroupVersion, []string{"ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet",
		"StatefulSet"}},
	{autoscalingv1.SchemeGroupVersion, []string{"HorizontalPodAutoscaler", "Scale"}},
	{autoscalingv2.SchemeGroupVersion, []string{"HorizontalPodAutoscaler"}},
	{batchv1.SchemeGroupVersion, []string{"CronJob", "Job"}},
	{certificatesv1.SchemeGroupVersion, []string{"CertificateSigningRequest", "ClusterTrustBundle",
		"PodCertificateRequest"}},
	{coordinationv1.SchemeGroupVersion, []string{"Lease"}},
	{discoveryv1.SchemeGroupVersion, []string{"EndpointSlice"}},
	{eventsv1.SchemeGroupVersion, []string{"Event"}},
	{flowcontrolv1.SchemeGroupVersion, []string{"FlowSchema", "PriorityLevelConfiguration"}},
	{networkingv1.SchemeGroupVersion, []string{"IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"}},
	{nodev1.SchemeGroupVersion, []string{"RuntimeClass"}},
	{policyv1.SchemeGroupVersion, []string{"Eviction", "PodDisruptionBudget"}},
	{policyv1beta1.SchemeGroupVersion, []string{"Eviction"}},
	{rbacv1.SchemeGroupVersion, []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}},
	{schedulingv1.SchemeGroupVersion, []string{"PriorityClass"}},
	{storagev1.SchemeGroupVersion, []string{"CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass",
		"VolumeAttachment", "VolumeAttributesClass"}},
	{storagemigrationv1.SchemeGroupVersion, []string{"StorageVersionMigration"}},
	{authenticationv1.SchemeGroupVersion, []string{"SelfSubjectReview", "TokenRequest", "TokenReview"}},
	{authorizationv1.SchemeGroupVersion, []string{"LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
		"SubjectAccessReview"}},
	{apiregistrationv1.SchemeGroupVersion, []string{"APIService"}},
	{apiextensionsv1.SchemeGroupVersion, []string{"CustomResourceDefinition"}},
	{resourcev1.SchemeGroupVersion, []string{"DeviceClass", "DeviceTaintRule", "ResourceClaim",
		"ResourceClaimTemplate", "ResourceSlice"}},
	{resourcev1beta2.SchemeGroupVersion, []string{"DeviceClass", "DeviceTaintRule", "ResourceClaim",
		"ResourceClaimTemplate", "ResourceSlice"}},
	{resourcev1beta1.SchemeGroupVersion, []string{"DeviceClass", "ResourceClaim", "ResourceClaimTemplate",
		"ResourceSlice"}},
	{resourcev1alpha3.SchemeGroupVersion, []string{"DeviceTaintRule"}},
}

var scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, authenticationv1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, nodev1.AddToScheme,
		autoscalingv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, certificatesv1.AddToScheme, discoveryv1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, policyv1beta1.AddToScheme, rbacv1.AddToScheme, schedulingv1.AddToScheme,
		storagev1.AddToScheme, storagemigrationv1.AddToScheme,
		corev1.AddToScheme, discoveryv2.AddToScheme, discoveryv2beta1.AddToScheme, authorizationv1.AddToScheme,
		resourcev1.AddToScheme, resourcev1alpha3.AddToScheme, resourcev1beta1.AddToScheme,
		resourcev1beta2.AddToScheme, flowcontrolv1.AddToScheme, apiregistrationv1.AddToScheme, apiextensionsv1.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	meta := metav1.SchemeGroupVersion
	scheme.AddKnownTypes(meta, &metav1.APIVersions{}, &metav1.APIGroup{}, &metav1.APIGroupList{},
		&metav1.APIResourceList{}, &metav1.DeleteOptions{}, &metav1.Status{})
}

func eachKind(do func(schema.GroupVersionKind)) {
	for _, group := range kinds {
		for _, name := range group.names {
			do(group.version.WithKind(name))
			if list := group.version.WithKind(name + "List"); scheme.Recognizes(list) && name != "APIGroup" {
				do(list)
			}
		}
	}
}

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "messages":
		printMessages()
	case len(os.Args) == 2 && os.Args[1] == "samples":
		printSamples()
	default:
		fmt.Fprintln(os.Stderr, "usage: go run . messages|samples")
		os.Exit(2)
	}
}
