// A question before something that cannot be undone.
import { useState, type ReactNode } from "react";
import { Button, Dialog, Heading, Modal, ModalOverlay } from "react-aria-components";

type Props = { title: string; verb: string; children: ReactNode; close: () => void; confirm: () => Promise<void> | void };

export function Confirm({ title, verb, children, close, confirm }: Props) {
  const [busy, setBusy] = useState(false);
  return (
    <ModalOverlay className="overlay" isOpen isDismissable onOpenChange={(open) => !open && close()}>
      <Modal className="modal">
        <Dialog role="alertdialog" className="dialog">
          <Heading slot="title">{title}</Heading>
          {children}
          <div className="row end">
            <Button className="button" autoFocus onPress={close}>Keep it</Button>
            <Button
              className="button danger"
              isDisabled={busy}
              onPress={() => {
                setBusy(true);
                void Promise.resolve(confirm()).finally(close);
              }}
            >
              {verb}
            </Button>
          </div>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
